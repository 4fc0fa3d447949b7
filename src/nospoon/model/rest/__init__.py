"""What the REST API answers: the daemon makes these, and its clients read them.

Fields are in the order of the JSON. What a client does not know of an answer it leaves out.
"""
