"""Grammar engines: each turns a grammar into masks over one vocabulary. No engine ever sees a stop token."""
