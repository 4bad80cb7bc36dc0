//! The Transport trait over TCP
