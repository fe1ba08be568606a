"""`aclearn evolve`: members that train, are judged and replaced, round by round."""
