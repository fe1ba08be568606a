"""Several learners of one shape whose updates are made together, as a batch of models."""

from __future__ import annotations

from aclearn.learning.batched.members import MemberLearners, MemberReports

__all__ = ["MemberLearners", "MemberReports"]
