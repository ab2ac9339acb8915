//! The listeners of a server: replicas, the backlog and the AOF. A LOCK.* command never reaches them; one that arrives all
//! the same, from a master or an AOF, is refused and logged.

mod refused;
