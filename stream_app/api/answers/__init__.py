"""The API's answers, from a view and a question. Pure functions, a module for each subject."""
