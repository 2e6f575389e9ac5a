//! Empty: the end-to-end tests live in `tests/envoy/`, this package only gives them their dependencies.
