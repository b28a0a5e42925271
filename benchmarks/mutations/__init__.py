"""Wrong programs and wrong codelets, and an oracle of its own that says what is wrong with them."""
