//! Bytes to messages and back: InfiniBand and RoCEv2 headers, aggregation messages.
