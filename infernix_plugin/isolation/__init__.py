"""Compiles in processes of their own, where a hostile constraint takes nothing from those that are served.

A server process starts one *nursery*, which indexes the vocabulary and then only forks *workers*. A worker plans one
constraint after the other; one that takes long, takes too much memory or crashes is ended alone.
"""
