-------------------------------- MODULE Lock --------------------------------
(* One lock of LOCK.*, as docs/SEMANTICS.md, docs/COMMANDS.md and docs/FAILURE.md describe it: leases, tokens, the    *)
(* queue, sessions, NOTIFY claims, replication that loses its tail, and the grace after a failover. It was written    *)
(* from these pages, not from the code. The section Specification of docs/TESTING.md says what it leaves out.         *)
(*                                                                                                                    *)
(* Time is a number of ticks. A server may carry out a command at any time and any number of times, and each reply    *)
(* may be lost. A command is carried out when it is sent, and a replica acknowledges as soon as it can: a delay only  *)
(* makes a client believe for a shorter time, and a server grant less. Where a delay can do harm, it is an action.    *)
(*                                                                                                                    *)
(* Each client makes one attempt, whose ID is the client. Without LOCK.MACQUIRE, keys share only the last token of    *)
(* the server, so one key is enough.                                                                                  *)
EXTENDS Integers, Sequences, FiniteSets, TLC

CONSTANTS
    Clients, Servers, First,  \* First is the master at the start
    Lease, Margin,            \* in ticks
    Lag,                      \* min-replicas-max-lag and the 2 s: the age up to which an acknowledgement counts
    ClaimTime, PlaceTime,     \* lock.claim-ms and lock.place-ms
    MaxTime, MaxFaults,       \* the bounds of the model
    Uses,                     \* what happens: "poll" "block" "notify" "session" "extend" "release" "cancel" "timeout",
                              \* and the faults "promote" "restart" "stall"
    Behind,                   \* by how much the clocks of all servers but the first are behind
    Missing                   \* the conditions and rules that are switched off

VARIABLES
    now,
    clock,      \* of each server
    srv,        \* each server: its copy of the key, and what it keeps in memory
    cl,         \* each client: what it knows and believes
    top,        \* the largest token of any grant
    came,       \* for each server: the order in which the clients arrived, while they keep their places
    faults,
    bad         \* the promises that were broken, apart from exclusion

vars == <<now, clock, srv, cl, top, came, faults, bad>>

None == "none"
Without(condition) == condition \in Missing
Max(a, b) == IF a > b THEN a ELSE b
Min(a, b) == IF a < b THEN a ELSE b

------------------------------------------------------------------------------
(* The settings and the conditions of the grace. *)

Others == Servers \ {First}
\* Condition 1: the grace is the same on every server.
FullGrace == Lease + Margin + Lag
Grace(s) == IF Without("1") /\ s # First THEN Lease ELSE FullGrace
\* Condition 2: it was set before the oldest live lease was granted. Without it, an earlier lease can be longer.
AskedLease == IF Without("2") /\ now = 0 THEN FullGrace + 1 ELSE Lease
\* Condition 3: min-replicas-to-write equals the number of all replicas.
Need == IF Without("3") THEN Cardinality(Others) - 1 ELSE Cardinality(Others)
\* Condition 4: the clocks run at the same rate.
Rate(s) == IF Without("4") /\ s # First THEN 2 ELSE 1
\* Condition 5: the margin makes up for a stall that is too short to be noticed.
Noticed(stall) == stall > IF Without("5") THEN Margin + 1 ELSE Margin

------------------------------------------------------------------------------
(* The key and the server. A value without an ID is a grant that has to be claimed, or that lost its ID. *)

Free == [token |-> 0, ts |-> 0, id |-> None]
NoClaim == [id |-> None, until |-> 0, wrote |-> Free, before |-> Free]

\* What a server forgets when it starts, is promoted or becomes a replica.
Forget(server) == [server EXCEPT !.own = 0, !.session = None, !.line = <<>>, !.claim = NoClaim,
                                 !.fresh = [r \in Servers |-> 0], !.socket = {}, !.stall = -1]

Master(s) == srv[s].of = s
Runs(s) == Master(s) /\ srv[s].stall < 0
Held(s) == srv[s].key.token # 0 /\ clock[s] < srv[s].key.ts
InGrace(s) == clock[s] < srv[s].grace
\* A replica that has a replica of its own, or is joined by a new one, has enough as soon as it is promoted.
Answers(s) == {r \in Servers \ {s} : srv[r].of = s \/ srv[s].fresh[r] > 0}
Enough(s) == Cardinality(Answers(s)) + (IF Without("place") /\ s # First THEN 1 ELSE 0) >= Need
MayGrant(s) == Runs(s) /\ ~InGrace(s) /\ Enough(s)

NewToken(s) == IF Without("token") THEN clock[s] * 10 + 1
               ELSE Max(clock[s] * 10, Max(srv[s].last, srv[s].key.token) + 1)

------------------------------------------------------------------------------
(* The queue: a sequence of clients that wait, or whose place is reserved until a time. *)

In(line, c) == \E i \in 1..Len(line) : line[i].id = c
Drop(line, c) == SelectSeq(line, LAMBDA e : e.id # c)
Waiters(s) == {srv[s].line[i].id : i \in {j \in 1..Len(srv[s].line) : srv[s].line[j].waits}}
FirstWaiter(s) == LET waiting == SelectSeq(srv[s].line, LAMBDA e : e.waits) IN waiting[1].id
Put(line, c, waits, until) ==
    LET entry == [id |-> c, waits |-> waits, until |-> until]
    IN IF In(line, c) THEN [i \in 1..Len(line) |-> IF line[i].id = c THEN entry ELSE line[i]] ELSE Append(line, entry)
Wait(line, c) == Put(IF Without("reserved") THEN Drop(line, c) ELSE line, c, TRUE, 0)
Reserve(line, c) == IF PlaceTime = 0 THEN Drop(line, c) ELSE Put(line, c, FALSE, now + PlaceTime)
Forever == MaxTime + PlaceTime + 1

\* The witness numbers the clients as they arrive. It forgets a client's number only once its place is gone.
Number(order, line) == [c \in Clients |->
    IF ~In(line, c) THEN 0
    ELSE IF order[c] = 0 THEN 1 + Cardinality({d \in Clients : In(line, d) /\ order[d] > 0})
    ELSE Cardinality({d \in Clients : In(line, d) /\ order[d] \in 1..order[c]})]
Overtakes(s, c) == \E d \in Waiters(s) \ {c} : came[s][c] = 0 \/ came[s][d] < came[s][c]

------------------------------------------------------------------------------
(* What a client believes: from the reply on, for a lease from when it sent the command. *)

Client(mode, session) == [st |-> "asks", mode |-> mode, session |-> session, token |-> 0, until |-> 0]
Done == [Client("poll", FALSE) EXCEPT !.st = "done"]
Believes(c) == cl[c].st \in {"granted", "holds", "cut"} /\ cl[c].until > now
\* After a wait the client does not know when it was granted the lock, and sends EXTEND first: "granted".
Told(c, st, token) == [cl EXCEPT ![c].st = st, ![c].token = token, ![c].until = now + AskedLease]
Reply(c, got, st, token) == IF got THEN Told(c, st, token) ELSE cl

Init ==
    /\ now = 0
    /\ clock = [s \in Servers |-> IF s = First THEN Behind ELSE 0]
    /\ srv = [s \in Servers |-> [of |-> First, key |-> Free, last |-> 0, grace |-> 0, own |-> 0, session |-> None,
                                 line |-> <<>>, claim |-> NoClaim, fresh |-> [r \in Servers |-> 0], socket |-> {},
                                 stall |-> -1]]
    /\ cl \in [Clients -> {Client(mode, session) : mode \in Uses \cap {"poll", "block", "notify"},
                                                 session \in {FALSE, "session" \in Uses}}]
    /\ top = 0
    /\ came = [s \in Servers |-> [c \in Clients |-> 0]]
    /\ faults = 0
    /\ bad = {}

(* A server carries out a command. *)

\* A change of the server's part, with the witness of the order.
Change(s, server) == /\ srv' = [srv EXCEPT ![s] = server]
                     /\ came' = [came EXCEPT ![s] = Number(@, server.line)]
                     /\ UNCHANGED <<now, clock, faults>>
Judge(s, c, token) ==
    /\ top' = Max(top, token)
    /\ bad' = bad \cup (IF token <= top THEN {"token"} ELSE {}) \cup (IF Overtakes(s, c) THEN {"overtaken"} ELSE {})

Expiry(s, c) == clock[s] + AskedLease + Margin
SessionOf(c) == IF cl[c].session THEN c ELSE None
Asks(s, c) == Runs(s) /\ cl[c].st = "asks"
Unclaimed(s) == srv[s].claim.id # None /\ ~(Without("claim") /\ srv[s].claim.until <= clock[s])

\* ACQUIRE of a lock that is free or has expired. Waiters come first.
Take(s, c, got) ==
    /\ Asks(s, c) /\ MayGrant(s) /\ ~Held(s) /\ ~Unclaimed(s)
    /\ Waiters(s) \subseteq {c} \/ Without("queue")
    /\ LET token == NewToken(s)
       IN /\ Change(s, [srv[s] EXCEPT !.key = [token |-> token, ts |-> Expiry(s, c), id |-> c], !.last = token,
                                      !.own = token, !.session = SessionOf(c), !.line = Drop(@, c)])
          /\ cl' = Reply(c, got, "holds", token)
          /\ Judge(s, c, token)

\* The same ID again, after a lost reply or for a new SESSION. Until its grace is over, a new master does not prolong a
\* grant that the old one may have ended.
TakeAgain(s, c, got) ==
    /\ Runs(s) /\ Enough(s) /\ Held(s) /\ srv[s].key.id = c
    /\ \/ cl[c].st = "asks"
       \/ cl[c].session /\ cl[c].st \in {"granted", "holds", "cut"}
    /\ ~InGrace(s) \/ srv[s].own = srv[s].key.token \/ Without("ids")
    /\ Change(s, [srv[s] EXCEPT !.key.ts = Max(@, Expiry(s, c)), !.session = SessionOf(c), !.line = Drop(@, c)])
    /\ cl' = Reply(c, got, "holds", srv[s].key.token)
    /\ UNCHANGED <<top, bad>>

Claim(s, c, got) ==
    /\ Asks(s, c) /\ MayGrant(s) /\ srv[s].claim.id = c
    /\ srv[s].key = srv[s].claim.wrote \/ Without("claim")
    /\ LET token == srv[s].claim.wrote.token
       IN /\ Change(s, [srv[s] EXCEPT !.key = [token |-> token, ts |-> Expiry(s, c), id |-> c], !.claim = NoClaim,
                                      !.session = SessionOf(c), !.line = Drop(@, c)])
          /\ cl' = Reply(c, got, "holds", token)
          /\ bad' = IF token = top THEN bad ELSE bad \cup {"claim"}
    /\ UNCHANGED top

\* A refused command waits, or gets a reserved place.
Queue(s, c) ==
    /\ Asks(s, c) /\ c \notin Waiters(s) /\ srv[s].claim.id # c /\ ~(Held(s) /\ srv[s].key.id = c)
    /\ Held(s) \/ Unclaimed(s) \/ Waiters(s) # {} \/ ~MayGrant(s)
    /\ Change(s, [srv[s] EXCEPT !.line = IF cl[c].mode = "poll" THEN Reserve(@, c) ELSE Wait(@, c)])
    /\ UNCHANGED <<cl, top, bad>>

\* WAIT has passed, the connection has ended, or the channel has no subscriber or is skipped.
TimeOut(s, c) ==
    /\ "timeout" \in Uses /\ Runs(s) /\ c \in Waiters(s)
    /\ Change(s, [srv[s] EXCEPT !.line = Reserve(@, c)])
    /\ UNCHANGED <<cl, top, bad>>

\* The lock becomes free, and its first waiter gets it. A grant with NOTIFY has to be claimed.
HandOff(s, got) ==
    /\ MayGrant(s) /\ ~Held(s) /\ ~Unclaimed(s) /\ Waiters(s) # {}
    /\ LET c == FirstWaiter(s)
           token == NewToken(s)
           given == [token |-> token, ts |-> Expiry(s, c), id |-> c]
           offer == [token |-> token, ts |-> clock[s] + ClaimTime + Margin, id |-> None]
       IN /\ IF cl[c].mode = "block"
             THEN /\ Change(s, [srv[s] EXCEPT !.key = given, !.last = token, !.own = token, !.session = SessionOf(c),
                                              !.line = Drop(@, c)])
                  /\ cl' = IF cl[c].st = "asks" THEN Reply(c, got, "granted", token) ELSE cl
             ELSE /\ Change(s, [srv[s] EXCEPT !.key = offer, !.last = token, !.session = None,
                                              !.claim = [id |-> c, until |-> clock[s] + ClaimTime, wrote |-> offer,
                                                         before |-> srv[s].key],
                                              !.line = Put(@, c, FALSE, Forever)])
                  /\ cl' = IF Without("hint") /\ cl[c].st = "asks" THEN Told(c, "holds", token) ELSE cl
          /\ Judge(s, c, token)

\* Nobody claimed the grant in time: it is passed on as if it had never been made.
PassOn(s) ==
    /\ Runs(s) /\ srv[s].claim.id # None /\ srv[s].claim.until <= clock[s] /\ srv[s].key = srv[s].claim.wrote
    /\ Change(s, [srv[s] EXCEPT !.key = srv[s].claim.before, !.claim = IF Without("claim") THEN @ ELSE NoClaim,
                                !.line = Reserve(@, srv[s].claim.id)])
    /\ UNCHANGED <<cl, top, bad>>

\* The rules for a client that extends: see "What the grace does not cover" in FAILURE.md.
MayExtend(c) == \/ cl[c].st = "granted"
                \/ cl[c].st = "holds" /\ (cl[c].until > now \/ Missing \cap {"late", "reply"} # {})
                \/ cl[c].st = "cut" /\ Without("session")
                \/ cl[c].st = "left"
\* A reply that arrives after the lease has ended comes too late. Otherwise an earlier EXTEND would count.
Sent(c) == IF Without("reply") /\ cl[c].st = "holds" THEN Min(now, cl[c].until - 1) ELSE now

Extend(s, c, got) ==
    /\ "extend" \in Uses /\ Runs(s) /\ MayExtend(c)
    /\ IF Held(s) /\ srv[s].key.token = cl[c].token /\ srv[s].key.id # None
       THEN /\ Enough(s)
            /\ Change(s, [srv[s] EXCEPT !.key.ts = clock[s] + Lease + Margin])
            /\ cl' = IF got THEN [cl EXCEPT ![c].st = "holds", ![c].until = Sent(c) + Lease] ELSE cl
       ELSE /\ cl' = [cl EXCEPT ![c] = Done]
            /\ UNCHANGED <<now, clock, srv, came, faults>>
    /\ UNCHANGED <<top, bad>>

Release(s, c) ==
    /\ "release" \in Uses /\ Runs(s) /\ cl[c].st \in {"granted", "holds"}
    /\ Change(s, IF srv[s].key.token = cl[c].token THEN [srv[s] EXCEPT !.key = Free, !.session = None] ELSE srv[s])
    /\ cl' = IF Without("release") THEN [cl EXCEPT ![c].st = "left", ![c].until = 0] ELSE [cl EXCEPT ![c] = Done]
    /\ UNCHANGED <<top, bad>>

\* CANCEL of an attempt by its own client.
Cancel(s, c) ==
    /\ "cancel" \in Uses /\ Asks(s, c)
    /\ LET freed == [srv[s] EXCEPT !.line = Drop(@, c)]
       IN Change(s, IF Held(s) /\ srv[s].key.id = c THEN [freed EXCEPT !.key = Free, !.session = None]
                    ELSE IF srv[s].claim.id = c THEN [freed EXCEPT !.key = srv[s].claim.before, !.claim = NoClaim]
                    ELSE freed)
    /\ cl' = [cl EXCEPT ![c] = Done]
    /\ UNCHANGED <<top, bad>>

\* The connection of a SESSION ends. Its holder stops within one margin.
Disconnect(s) ==
    /\ Runs(s) /\ srv[s].session # None
    /\ LET c == srv[s].session
       IN cl' = IF cl[c].st \in {"granted", "holds"} /\ cl[c].token = srv[s].key.token
                THEN [cl EXCEPT ![c].st = "cut",
                                ![c].until = IF Without("notice") THEN @ ELSE Min(@, now + Margin)]
                ELSE cl
    /\ Change(s, [srv[s] EXCEPT !.key.ts = Min(@, clock[s] + Margin), !.session = None])
    /\ UNCHANGED <<top, bad>>

------------------------------------------------------------------------------
(* Replication and faults. Clients and servers may be cut off from each other at any time: nothing has to happen. *)

Grouped == UNCHANGED <<now, clock, cl, top, bad>>

Copy(r) ==
    /\ ~Master(r) /\ Master(srv[r].of) /\ srv[r].key # srv[srv[r].of].key
    /\ srv' = [srv EXCEPT ![r].key = srv[srv[r].of].key]
    /\ UNCHANGED <<came, faults>> /\ Grouped

\* The network delivers an acknowledgement late, or a stalled master reads it late: it seems to be new.
Arrive(s, r) ==
    /\ Without("network") /\ Runs(s) /\ r \in srv[s].socket
    /\ srv' = [srv EXCEPT ![s].fresh[r] = Lag + 1, ![s].socket = @ \ {r}]
    /\ UNCHANGED <<came, faults>> /\ Grouped

Stall(s) ==
    /\ "stall" \in Uses /\ Runs(s) /\ faults < MaxFaults
    /\ srv' = [srv EXCEPT ![s].stall = 0]
    /\ faults' = faults + 1
    /\ UNCHANGED came /\ Grouped

\* After a stall that it notices, a master trusts only acknowledgements of what it has sent since.
Resume(s) ==
    /\ srv[s].stall >= 0
    /\ srv' = [srv EXCEPT ![s].stall = -1, ![s].socket = {}, ![s].fresh = [r \in Servers |->
                  IF Noticed(srv[s].stall) /\ ~Without("guard") THEN 0
                  ELSE IF r \in srv[s].socket THEN Lag + 1 ELSE @[r]]]
    /\ UNCHANGED <<came, faults>> /\ Grouped

\* The last acknowledgement that a replica sends to its master.
Last(r) == LET m == srv[r].of
           IN IF m = r \/ ~Master(m) THEN srv
              ELSE IF srv[m].stall >= 0 THEN [srv EXCEPT ![m].socket = @ \cup {r}]
              ELSE [srv EXCEPT ![m].fresh[r] = Lag + 1, ![m].socket = IF Without("network") THEN {r} ELSE {}]

Start(s, server) ==
    /\ srv' = [Last(s) EXCEPT ![s] = [Forget(server) EXCEPT !.grace = clock[s] + Grace(s)]]
    /\ came' = [came EXCEPT ![s] = [c \in Clients |-> 0]]
    /\ faults' = faults + 1
    /\ Grouped

Promote(r) == "promote" \in Uses /\ ~Master(r) /\ faults < MaxFaults /\ Start(r, [srv[r] EXCEPT !.of = r])

\* A master comes back empty, or without the tail of its AOF.
Restart(s) ==
    /\ "restart" \in Uses /\ Master(s) /\ faults < MaxFaults
    /\ \E key \in {Free} \cup {srv[r].key : r \in Servers} : Start(s, [srv[s] EXCEPT !.key = key, !.last = 0])

\* A server becomes a replica of a master, and a copy of it.
Follow(s, m) ==
    /\ s # m /\ Master(m) /\ srv[s].of # m /\ srv[s].stall < 0
    /\ Without("place") => m # First
    /\ srv' = [Last(s) EXCEPT ![s] = [Forget(srv[s]) EXCEPT !.of = m, !.key = srv[m].key]]
    /\ came' = [came EXCEPT ![s] = [c \in Clients |-> 0]]
    /\ UNCHANGED faults /\ Grouped

\* A holder whose lease has ended stops.
Later(c) == IF cl[c].st \in {"holds", "cut"} /\ cl[c].until <= now + 1 /\ Missing \cap {"late", "reply", "session"} = {}
            THEN Done ELSE cl[c]

Tick ==
    /\ now < MaxTime
    /\ now' = now + 1
    /\ clock' = [s \in Servers |-> clock[s] + Rate(s)]
    /\ cl' = [c \in Clients |-> Later(c)]
    /\ srv' = [s \in Servers |-> [srv[s] EXCEPT
                  !.line = SelectSeq(@, LAMBDA e : e.waits \/ e.until > now + 1),
                  !.fresh = [r \in Servers |-> Max(@[r] - 1, 0)],
                  !.stall = IF @ < 0 THEN @ ELSE @ + 1]]
    /\ came' = [s \in Servers |-> Number(came[s], srv'[s].line)]
    /\ UNCHANGED <<top, faults, bad>>

Next ==
    \/ Tick
    \/ \E s \in Servers, c \in Clients : Queue(s, c) \/ TimeOut(s, c) \/ Release(s, c) \/ Cancel(s, c)
    \/ \E s \in Servers, c \in Clients, got \in BOOLEAN :
           Take(s, c, got) \/ TakeAgain(s, c, got) \/ Claim(s, c, got) \/ Extend(s, c, got)
    \/ \E s \in Servers : PassOn(s) \/ Disconnect(s) \/ \E got \in BOOLEAN : HandOff(s, got)
    \/ \E s \in Servers : Copy(s) \/ Stall(s) \/ Resume(s) \/ Promote(s) \/ Restart(s)
    \/ \E s, r \in Servers : Follow(s, r) \/ Arrive(s, r)

Spec == Init /\ [][Next]_vars
Symmetry == Permutations(Clients)
------------------------------------------------------------------------------
(* The promises. *)

\* At most one client believes that it holds the lock.
OneHolder == \A c, d \in Clients : Believes(c) /\ Believes(d) => c = d
\* Each grant has a larger token than all grants before it.
TokensGrow == "token" \notin bad
\* No grant goes to a client while an earlier one waits.
NobodyOvertaken == "overtaken" \notin bad
\* A claim gets the last grant or none.
ClaimsGetTheLastGrant == "claim" \notin bad
=============================================================================
