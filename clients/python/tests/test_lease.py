"""How long a hold lasts. The tests pass in the time, so they need neither a server nor a clock."""

import unittest

from serverlock.core.lease import Lease


class Leases(unittest.TestCase):
    def test_for_its_holder_a_lease_ends_a_tenth_early(self) -> None:
        lease = Lease(100.0, 30.0)
        self.assertEqual((lease.renew_at, lease.lost_at, lease.ends_at), (110.0, 127.0, 130.0))
        self.assertEqual(Lease(100.0, 30.0, margin=0.0).lost_at, 130.0)

    def test_a_confirmed_extension_counts_from_when_it_was_sent(self) -> None:
        lease = Lease(100.0, 30.0)
        lease.extending(110.0, 30.0)
        self.assertEqual(lease.ends_at, 130.0)
        lease.extended(110.0, 30.0, counts=True)
        self.assertEqual(lease.ends_at, 140.0)

    def test_an_extension_that_shortens_the_lease_takes_effect_at_once_and_for_good(self) -> None:
        lease = Lease(100.0, 30.0)
        lease.extending(110.0, 5.0)
        self.assertEqual(lease.ends_at, 115.0)
        lease.extended(110.0, 5.0, counts=False)
        self.assertEqual(lease.ends_at, 115.0)

    def test_the_earliest_end_of_several_extensions_in_flight_applies(self) -> None:
        lease = Lease(100.0, 30.0)
        lease.extending(110.0, 60.0)
        lease.extending(111.0, 10.0)
        lease.extended(110.0, 60.0, counts=True)
        self.assertEqual(lease.ends_at, 121.0)
        lease.extended(111.0, 10.0, counts=True)
        self.assertEqual(lease.ends_at, 121.0)
        lease.extending(112.0, 60.0)
        lease.extended(112.0, 60.0, counts=True)
        self.assertEqual(lease.ends_at, 172.0)

    def test_a_lease_is_renewed_until_max_hold(self) -> None:
        lease = Lease(100.0, 30.0, renewed_until=150.0)
        self.assertTrue(lease.may_renew(149.9))
        self.assertFalse(lease.may_renew(150.0))
        self.assertTrue(Lease(100.0, 30.0).may_renew(1e12))


if __name__ == "__main__":
    unittest.main()
