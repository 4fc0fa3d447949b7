"""What answers and events are made of: errors, types, URIs, jobs, long lists."""
