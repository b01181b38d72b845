"""grade: the exercises of the course in docs/teaching, checked line by line, with known mistakes by name."""

from minidl.testing.grading.grader import grade

__all__ = ["grade"]
