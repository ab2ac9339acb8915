//! The contenders for several holders and several keys.

use crate::bounds::list::{BARE_RELEASE, LIMIT, LIMIT_REFUSED, LUA_SEMAPHORE, MANY_KEYS, OURS, SHARED};
use crate::pair::connection::{loaded, step, Part, Step, MANY, NIL, OK, ONE, TEN, TOKEN, TRANSACTION, ZERO};
use crate::pair::work::{release, set, Command, Contender, Workload, LEASE_MS};
use testkit::Conn;

/// The lease of permanent holders.
const LONG_MS: &str = "600000";

const CROWDS: [(&str, usize); 4] = [
    ("SHARED, 10 others", 10),
    ("SHARED, 100 others", 100),
    ("SHARED, 1,000 others", 1_000),
    ("SHARED, 4,000 others", 4_000),
];

/// The semaphore of many libraries: a sorted set with its holders and the ends of their leases. It uses the server's
/// clock, like LOCK.*.
const SEMAPHORE_ACQUIRE: &str = "local t=redis.call('time') local now=t[1]*1000+math.floor(t[2]/1000) \
    redis.call('zremrangebyscore',KEYS[1],'-inf',now) \
    if redis.call('zcard',KEYS[1])<tonumber(ARGV[1]) then \
    redis.call('zadd',KEYS[1],now+ARGV[3],ARGV[2]) redis.call('pexpire',KEYS[1],ARGV[3]) return 1 else return 0 end";
/// Its release, which reports whether it was in time, like LOCK.RELEASE.
const SEMAPHORE_RELEASE: &str = "local t=redis.call('time') local now=t[1]*1000+math.floor(t[2]/1000) \
    local till=redis.call('zscore',KEYS[1],ARGV[1]) if not till then return 0 end \
    redis.call('zrem',KEYS[1],ARGV[1]) if tonumber(till)>now then return 1 else return -1 end";
/// All or none of several keys, each taken like a single lock.
const ALL_ACQUIRE: &str = "for i=1,#KEYS do if redis.call('exists',KEYS[i])==1 then return 0 end end \
    for i=1,#KEYS do redis.call('set',KEYS[i],ARGV[1],'px',ARGV[2]) end return 1";
/// Releases the keys that the caller still holds.
const ALL_RELEASE: &str = "local n=0 for i=1,#KEYS do if redis.call('get',KEYS[i])==ARGV[1] then \
    n=n+redis.call('del',KEYS[i]) end end return n";

/// A semaphore with `holders` other holders, which the measured operation must not affect.
pub fn semaphore(conn: &mut Conn, name: &'static str, holders: usize, share: &str) -> Workload {
    let ours = step(&format!("LOCK.ACQUIRE KEY PX {LONG_MS} {share}"), TOKEN);
    let lua = loaded(conn, SEMAPHORE_ACQUIRE);
    let most = holders + 10;
    let other = |at| step(&format!("EVALSHA {lua} 1 KEY {most} other-{at:08} {LONG_MS}"), ONE);
    let theirs = step(&format!("EVALSHA {lua} 1 KEY {most} SECRET {LONG_MS}"), ONE);
    let release_theirs = step(&format!("EVALSHA {} 1 KEY SECRET", loaded(conn, SEMAPHORE_RELEASE)), ONE);
    let others: Vec<Step> = (0..holders).map(other).collect();
    let contenders = vec![
        Contender::new(OURS, vec![ours.clone(); holders], vec![ours, release()]),
        Contender::new(LUA_SEMAPHORE, others.clone(), vec![theirs.clone(), release_theirs]),
        Contender::new(BARE_RELEASE, others, vec![theirs, step("ZREM KEY SECRET", ONE)]),
    ];
    Workload { name, contenders }
}

/// Several holders, and several keys.
pub fn of_several(conn: &mut Conn) -> Vec<Workload> {
    let lua = loaded(conn, SEMAPHORE_ACQUIRE);
    let fill = |at| step(&format!("EVALSHA {lua} 1 KEY 10 other-{at:08} {LONG_MS}"), ONE);
    let limited = |expect| step(&format!("LOCK.ACQUIRE KEY PX {LONG_MS} LIMIT 10"), expect);
    let full = Workload {
        name: LIMIT_REFUSED,
        contenders: vec![
            Contender::new(OURS, vec![limited(TOKEN); 10], vec![limited(NIL)]),
            Contender::new(
                LUA_SEMAPHORE,
                (0..10).map(fill).collect(),
                vec![step(&format!("EVALSHA {lua} 1 KEY 10 SECRET {LONG_MS}"), ZERO)],
            ),
        ],
    };
    let [all_acquire, all_release] = [ALL_ACQUIRE, ALL_RELEASE].map(|script| loaded(conn, script));
    let all_acquire = step(&format!("EVALSHA {all_acquire} 10 KEYS SECRET {LEASE_MS}"), ONE);
    let all_release = || step(&format!("EVALSHA {all_release} 10 KEYS SECRET"), TEN);
    let mut transaction = step("MULTI", TRANSACTION);
    for nth in 0..MANY {
        let set = set(OK).parts;
        let set = set.into_iter().map(|part| if matches!(part, Part::Key) { Part::OneOfKeys(nth) } else { part });
        transaction.parts.extend(set);
    }
    transaction.parts.extend(step("EXEC", OK).parts);
    let many = Workload {
        name: MANY_KEYS,
        contenders: vec![
            Contender::new(OURS, vec![], vec![all_acquired(), all_released()]),
            Contender::new("MULTI, 10 SET NX PX, EXEC + EVALSHA", vec![], vec![transaction, all_release()]),
            Contender::new("EVALSHA + EVALSHA", vec![], vec![all_acquire, all_release()]),
        ],
    };
    let shared = semaphore(conn, SHARED, 10, "SHARED");
    let limit = semaphore(conn, LIMIT, 10, "LIMIT 20");
    vec![shared, limit, full, many]
}

/// A lock shared by more and more holders.
pub fn crowds(conn: &mut Conn) -> Vec<Workload> {
    CROWDS.iter().map(|(name, others)| semaphore(conn, name, *others, "SHARED")).collect()
}

/// Every command of it.
pub fn commands(conn: &mut Conn) -> Vec<Command> {
    let command = |name, before, step, after| Command { name, before, step, after };
    let delete = || step("DEL KEY", ONE);
    let lua = loaded(conn, SEMAPHORE_ACQUIRE);
    let shared = || step(&format!("LOCK.ACQUIRE KEY PX {LONG_MS} SHARED"), TOKEN);
    let limited = |expect| step(&format!("LOCK.ACQUIRE KEY PX {LONG_MS} LIMIT 10"), expect);
    let others = || -> Vec<Step> {
        (0..10).map(|at| step(&format!("EVALSHA {lua} 1 KEY 10 other-{at:08} {LONG_MS}"), ONE)).collect()
    };
    let theirs = |most, expect| step(&format!("EVALSHA {lua} 1 KEY {most} SECRET {LONG_MS}"), expect);
    let with_theirs: Vec<Step> = others().into_iter().chain([theirs(20, ONE)]).collect();
    let release_theirs = step(&format!("EVALSHA {} 1 KEY SECRET", loaded(conn, SEMAPHORE_RELEASE)), ONE);
    let [all_acquire, all_release] = [ALL_ACQUIRE, ALL_RELEASE].map(|script| loaded(conn, script));
    let all_acquire = || step(&format!("EVALSHA {all_acquire} 10 KEYS SECRET {LEASE_MS}"), ONE);
    let all_release = || step(&format!("EVALSHA {all_release} 10 KEYS SECRET"), TEN);
    vec![
        command("LOCK.ACQUIRE SHARED, 10 others", vec![shared(); 10], shared(), vec![delete()]),
        command("LOCK.RELEASE, 10 others", vec![shared(); 11], release(), vec![delete()]),
        command("LOCK.ACQUIRE LIMIT refused", vec![limited(TOKEN); 10], limited(NIL), vec![delete()]),
        command("LOCK.MACQUIRE, 10 keys", vec![], all_acquired(), vec![all_released()]),
        command("LOCK.MRELEASE, 10 keys", vec![all_acquired()], all_released(), vec![]),
        command("EVALSHA (semaphore), 10 others", others(), theirs(20, ONE), vec![delete()]),
        command("EVALSHA (semaphore, release), 10 others", with_theirs.clone(), release_theirs, vec![delete()]),
        command("ZREM, 10 others", with_theirs, step("ZREM KEY SECRET", ONE), vec![delete()]),
        command("EVALSHA (semaphore) refused", others(), theirs(10, ZERO), vec![delete()]),
        command("EVALSHA (10 keys)", vec![], all_acquire(), vec![all_release()]),
        command("EVALSHA (10 keys, del)", vec![all_acquire()], all_release(), vec![]),
    ]
}

fn all_acquired() -> Step {
    step(&format!("LOCK.MACQUIRE 10 KEYS PX {LEASE_MS}"), TOKEN)
}

fn all_released() -> Step {
    step("LOCK.MRELEASE 10 KEYS TOKEN", TEN)
}
