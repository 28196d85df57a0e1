//! Canonical numerics, reference ops and bit-identical backends for redraft.
