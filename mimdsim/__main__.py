"""`python -m mimdsim`"""

from mimdsim.cli import main

main()
