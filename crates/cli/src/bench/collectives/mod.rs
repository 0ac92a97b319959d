pub(crate) mod rank;
