"""Cycle formulas of the vendor's library codelets (popops, poplin, popsparse, poprand, popnn) as pure functions.

Each function says whether it counts tile cycles (supervisor plus all worker contexts) or worker cycles (one context).
Source: the cycle estimators of graphcore/poplibs, file named in each docstring. Where figures of commit 7eac0f2 were
available, they are reproduced (test_vendor_cycles.py); branches that none of them reaches follow earlier public
versions of the same files, in which individual constants may differ by a few cycles.
"""
