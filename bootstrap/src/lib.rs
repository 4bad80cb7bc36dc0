//! Rendezvous, address exchange, job credentials and liveness for networked back ends
