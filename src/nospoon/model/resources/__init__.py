"""Resources: everything that nospoon makes somewhere, by kind of shape; `resource` has them all."""
