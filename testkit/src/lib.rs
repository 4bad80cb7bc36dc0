//! In-process transport, conformance suite, fault injection and oracles for collectives
