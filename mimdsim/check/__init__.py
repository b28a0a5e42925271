"""Floor 7: is it right? Programs against the rules and the graph's meaning; predictions against published figures."""
