"""Masks remembered by what may still be written, so that the same place in any output of a grammar is computed once.

:mod:`atoms` reads characters, :mod:`machine` follows a grammar with them, :mod:`matcher` puts both around an engine;
:mod:`memory` bounds what is remembered and :mod:`account` what following a text may cost.
"""
