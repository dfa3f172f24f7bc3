"""``infernix demo``: real engines with the plugin, real requests, and answers checked by code that is not the plugin's.

``jobs`` says what is asked and how it is checked, ``server`` and ``offline`` run the engines, ``runner`` sends the
jobs, ``report`` shows what came back.
"""

from infernix_plugin.entrypoints.demo.runner import DemoOptions, run

__all__ = ["DemoOptions", "run"]
