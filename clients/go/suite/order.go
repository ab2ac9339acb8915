package main

import (
	"encoding/hex"
	"encoding/json"
	"time"

	"example.com/serverlock"
)

type order struct {
	N         int               `json:"n"`
	Name      string            `json:"name"`
	Ms        json.RawMessage   `json:"ms"`
	Do        string            `json:"do"`
	Of        int               `json:"of"`
	Manager   string            `json:"manager"`
	Hold      string            `json:"hold"`
	Scope     string            `json:"scope"`
	Body      string            `json:"within"`
	CancelMs  json.RawMessage   `json:"cancel_after_ms"`
	Object    string            `json:"object"`
	Leader    string            `json:"leader"`
	Observer  string            `json:"observer"`
	Args      []string          `json:"args"`
	At        place             `json:"at"`
	Protocol  int               `json:"protocol"`
	Portable  *bool             `json:"portable"`
	TimeoutMs json.RawMessage   `json:"timeout_ms"`
	Hooks     bool              `json:"hooks"`
	Key       json.RawMessage   `json:"key"`
	Keys      []json.RawMessage `json:"keys"`
	LeaseMs   json.RawMessage   `json:"lease_ms"`
	PeriodMs  json.RawMessage   `json:"period_ms"`
	Rerun     *bool             `json:"rerun"`
	WaitMs    json.RawMessage   `json:"wait_ms"`
	Shared    bool              `json:"shared"`
	Limit     *int              `json:"limit"`
	Recover   bool              `json:"recover"`
	Session   bool              `json:"session"`
	Owner     json.RawMessage   `json:"owner"`
	Reentrant bool              `json:"reentrant"`
	Nested    bool              `json:"nested"`
	Details   bool              `json:"details"`
	Replicas  int               `json:"replicas"`
	WithinMs  json.RawMessage   `json:"replicas_within_ms"`
	Fsync     bool              `json:"fsync"`
	AtLeastMs json.RawMessage   `json:"at_least_ms"`
	MaxHoldMs json.RawMessage   `json:"max_hold_ms"`
	LostTakes float64           `json:"lost_takes_ms"`
	Stays     bool              `json:"stays"`
	Worker    string            `json:"worker"`
	Value     json.RawMessage   `json:"value"`
	Flight    bool              `json:"single_flight"`
	Means     string            `json:"means"`
	Attempts  int               `json:"attempts"`
	AtOnce    int               `json:"at_once"`
	Among     []json.RawMessage `json:"among"`
	Within    float64           `json:"within_ms"`
}

type place struct {
	Kind      string      `json:"kind"`
	Name      string      `json:"name"`
	Host      string      `json:"host"`
	Port      json.Number `json:"port"`
	Path      string      `json:"path"`
	Sentinels [][2]any    `json:"sentinels"`
	Master    string      `json:"master"`
	Nodes     [][2]any    `json:"nodes"`
	User      string      `json:"user"`
	Password  string      `json:"password"`
	TLS       *struct {
		CA string `json:"ca"`
	} `json:"tls"`
}

// span reads milliseconds. In Go they can only be a number.
func span(raw json.RawMessage) (time.Duration, error) {
	var ms *float64
	if err := json.Unmarshal(raw, &ms); err != nil || ms == nil {
		return 0, cannot("a duration that is " + string(raw))
	}
	return time.Duration(*ms * float64(time.Millisecond)), nil
}

// bytesOf reads bytes, which are text or hex digits.
func bytesOf(raw json.RawMessage, what string) ([]byte, error) {
	var text *string
	if err := json.Unmarshal(raw, &text); err == nil && text != nil {
		return []byte(*text), nil
	}
	var packed struct {
		Hex *string `json:"hex"`
	}
	if err := json.Unmarshal(raw, &packed); err != nil || packed.Hex == nil {
		return nil, cannot("a " + what + " that is " + string(raw))
	}
	return hex.DecodeString(*packed.Hex)
}

func keyOf(raw json.RawMessage) (string, error) {
	key, err := bytesOf(raw, "key")
	return string(key), err
}

func (o *order) options() ([]serverlock.Option, error) {
	var options []serverlock.Option
	spans := map[*json.RawMessage]func(time.Duration) serverlock.Option{
		&o.WaitMs: serverlock.Wait, &o.AtLeastMs: serverlock.AtLeast, &o.MaxHoldMs: serverlock.MaxHold,
	}
	for raw, option := range spans {
		if *raw == nil {
			continue
		}
		value, err := span(*raw)
		if err != nil {
			return nil, err
		}
		options = append(options, option(value))
	}
	within := time.Second
	if o.WithinMs != nil {
		var err error
		if within, err = span(o.WithinMs); err != nil {
			return nil, err
		}
	}
	if o.Replicas > 0 {
		options = append(options, serverlock.Replicas(o.Replicas, within))
	}
	if o.Fsync {
		options = append(options, serverlock.Fsync(within))
	}
	if o.Session {
		options = append(options, serverlock.Session())
	}
	if o.Owner != nil {
		var owner *string
		if err := json.Unmarshal(o.Owner, &owner); err != nil {
			return nil, cannot("an owner that is " + string(o.Owner))
		}
		if owner == nil {
			options = append(options, serverlock.NoOwner())
		} else {
			options = append(options, serverlock.Owner(*owner))
		}
	}
	if o.Reentrant {
		options = append(options, serverlock.Reentrant())
	}
	if o.Details {
		options = append(options, serverlock.Details())
	}
	return options, nil
}

// onLost reports a loss, with these names.
func (o *order) onLost(names fields) serverlock.Option {
	return serverlock.OnLost(func(err error) {
		time.Sleep(time.Duration(o.LostTakes * float64(time.Millisecond)))
		line := fields{"event": "lost", "text": err.Error()}
		for name, value := range names {
			line[name] = value
		}
		say(line)
	})
}

// once returns what an order says runs once per period.
func (o *order) once(locks *serverlock.Locks, names fields) (*serverlock.Once, error) {
	key, err := keyOf(o.Key)
	if err != nil {
		return nil, err
	}
	period, err := span(o.PeriodMs)
	if err != nil {
		return nil, err
	}
	shared, err := o.options()
	if err != nil {
		return nil, err
	}
	options := []serverlock.OnceOption{o.onLost(names)}
	for _, option := range shared {
		options = append(options, option)
	}
	if o.LeaseMs != nil {
		lease, err := span(o.LeaseMs)
		if err != nil {
			return nil, err
		}
		options = append(options, serverlock.Lease(lease))
	}
	if o.Rerun != nil {
		options = append(options, serverlock.Rerun(*o.Rerun))
	}
	return locks.Once(key, period, options...), nil
}

// describer is a Locks or a SessionLocks.
type describer interface {
	Lock(key string, lease time.Duration, options ...serverlock.Option) *serverlock.Lock
	Shared(key string, lease time.Duration, options ...serverlock.Option) *serverlock.Lock
	Limit(key string, n int, lease time.Duration, options ...serverlock.Option) *serverlock.Lock
	AllOf(keys []string, lease time.Duration, options ...serverlock.Option) *serverlock.Lock
	Recover(key string, lease time.Duration, options ...serverlock.Option) *serverlock.Lock
}

// lock returns an order's lock. The event for its loss has these names.
func (o *order) lock(locks describer, names fields) (*serverlock.Lock, error) {
	lease, err := span(o.LeaseMs)
	if err != nil {
		return nil, err
	}
	options, err := o.options()
	if err != nil {
		return nil, err
	}
	options = append(options, o.onLost(names))
	if o.Keys != nil {
		keys := []string{}
		for _, raw := range o.Keys {
			key, err := keyOf(raw)
			if err != nil {
				return nil, err
			}
			keys = append(keys, key)
		}
		return locks.AllOf(keys, lease, options...), nil
	}
	key, err := keyOf(o.Key)
	switch {
	case err != nil:
		return nil, err
	case o.Shared:
		return locks.Shared(key, lease, options...), nil
	case o.Limit != nil:
		return locks.Limit(key, *o.Limit, lease, options...), nil
	case o.Recover:
		return locks.Recover(key, lease, options...), nil
	}
	return locks.Lock(key, lease, options...), nil
}
