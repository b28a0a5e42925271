"""Hostile and damaged files of every format that is read, made from good ones; `benchmarks/hostile_files.py` runs them.

A format makes a good file, writes mutants of it, reads one as the program does, and says what a file means by another
reading than the program's own: standard parsers, or what was written where a digest is kept. A mutant that is read must
mean what that other reading says; anything else has to be refused with a `MimdsimError`.
"""
