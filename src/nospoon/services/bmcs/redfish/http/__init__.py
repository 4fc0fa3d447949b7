"""Requests and answers: what every resource is read and written by."""
