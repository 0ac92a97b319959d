//! The fabric as data: shapes, routes, aggregation trees, alternate paths.
