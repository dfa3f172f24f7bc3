"""A process that ends while its vocabulary is indexed in the background."""

import subprocess
import sys

PROGRAM = """
import atexit

from infernix_plugin.settings import Settings
from infernix_plugin.structured_output import compilers
from tests.framing.calling import DOMAIN

compilers.domain_of = lambda *_: DOMAIN
warm = compilers.warm

def warm_for_long(compiler):
    while True:
        warm(compiler)

compilers.warm = warm_for_long
warming = compilers.RequestCompiler(None, None, Settings()).start_warming()
atexit.register(lambda: print("alive" if warming.is_alive() else "ended"))  # called when threads were waited for
"""


def test_the_process_waits_for_the_thread_which_stops_early():
    """A thread that the interpreter ends inside an engine's native code takes the process down with it."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
