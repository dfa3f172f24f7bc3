"""Masks remembered by what may still be written: positions of an output language, told apart byte by byte.

:mod:`atoms` reads characters, :mod:`machine` follows a grammar with them.
"""
