"""What each kind of plugin must do, as test classes to inherit from; zstore's own offers keep them too."""
