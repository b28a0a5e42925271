"""The rules of the machine, one function each; `program/verify.py` lists them in the order in which they run."""
