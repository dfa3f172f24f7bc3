"""Tool calls in Qwen's XML form: one contract makes the grammar of the calls and reads them back."""
