"""Mutants of the package's own source: made (`mutants`), which tests reach them (`reached`), and run (`running`)."""
