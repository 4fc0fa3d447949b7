"""What is known of hosts and machines while nothing is planned."""
