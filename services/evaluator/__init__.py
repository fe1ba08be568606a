"""Evaluation: of saved policies, and of the newest ones while training goes on."""
