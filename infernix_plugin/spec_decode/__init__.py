"""Speculative decoding under a constraint.

The engine core keeps every draft (:mod:`infernix_plugin.structured_output.manager`), masks bear on the target alone,
and on the CPU :mod:`.sampler` verifies each draft against what produced it (:mod:`.proposal`), by the theorem in
:mod:`.rejection`.
"""
