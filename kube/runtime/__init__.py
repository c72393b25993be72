"""Following and changing a cluster: informers, events, work queue, leader election, controller skeleton."""
