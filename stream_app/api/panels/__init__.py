"""Answers for the pages: panels of keys and values, and previews at another epsilon."""
