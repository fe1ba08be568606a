"""`aclearn publish`: a policy as a folder for a model hub."""
