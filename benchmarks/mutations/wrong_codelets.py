WRONG: dict = {}
def wrong_program(number): return None
