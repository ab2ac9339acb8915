# frozen_string_literal: true

require_relative "support"

# The two forms of a command.
class CommandTest < Minitest::Test
  def test_a_queue_is_in_the_slot_of_its_lock
    { "report" => "report:queue:{report}", "{42}:report" => "{42}:report:queue", "a{b}" => "a{b}:queue", "a}b" => nil,
      "a{b" => nil, "{}x" => nil, "x{}{y}" => nil, "\xFF" => "\xFF:queue:{\xFF}".b, "a\n" => "a\n:queue:{a\n}" }.each do |lock, queue|
      queue.nil? ? assert_nil(Serverlock::Keys.queue_of(lock)) : assert_equal(queue.b, Serverlock::Keys.queue_of(lock))
    end
  end

  def test_a_command_names_the_lock_and_its_queue
    request = Serverlock::Request.new("report", lease: 30, owner: "me")
    command = request.acquire(7, wait: 900, channel: "c")
    assert_equal ["lock.acquire", "report", "PX", 30_000, "ID", 7, "OWNER", "me", "WAIT", 900, "NOTIFY", "c"], command.words
    assert_equal [2, "report", "report:queue:{report}", "lock_acquire", 1000, -1, "PX", 30_000, "ID", 7, "OWNER", "me",
                  "WAIT", 900, "NOTIFY", "c"], command.script(-1, false)
    assert_equal [1, "report", "lock_acquire", 1000, -1, "PX", 30_000, "ID", 7, "OWNER", "me"], command.script(-1, true)
    assert_equal [1, "report", "lock_acquire"], request.acquire(7, alone: true).script(-1, false).take(3)
    refute_predicate command, :needs_module?
    assert_predicate request.acquire(7, wait: 900), :needs_module?, "the command blocks"
  end

  def test_the_owner_is_this_host_and_process
    request = Serverlock::Request.new("report", lease: 30)
    mine = "#{Socket.gethostname}:#{Process.pid}"
    assert_equal ["OWNER", mine], request.acquire(7).words.last(2)
    assert_equal mine, Serverlock::Request.new("report", lease: 30, recover: true).again(7).words[-2]
    reader, writer = IO.pipe
    child = fork do
      writer.write(request.acquire(7).words.last)
      exit!(0)
    end
    writer.close
    assert_equal "#{Socket.gethostname}:#{child}", reader.read
    Process.wait(child)
    refute_includes Serverlock::Request.new("report", lease: 30, owner: nil).acquire(7).words, "OWNER"
  end

  def test_a_host_name_becomes_a_valid_owner
    { "web-1" => "web-1:42", "a b\tc" => "a?b?c:42", "\u00fc\xFF" => "??:42", "h" * 200 => "#{'h' * 125}:42" }.each do |host, owner|
      assert_equal owner, Serverlock::Owner.label(host, 42)
      assert Serverlock::Request.new("report", lease: 30, owner:)
    end
  end

  def test_several_holders_or_several_keys_need_the_queues
    shared = Serverlock::Request.new("report", lease: 30, shared: true)
    assert_equal [2, "report", "report:queue:{report}", "lock_release", 1000, 60_000, 12], shared.release(12).script(60_000, true)
    assert_equal ["lock.cancel", "report", 7], shared.cancel(7, "c").words
    assert_equal [2, "report", "report:queue:{report}", "lock_cancel", 1000, 60_000, "ID", 7, "NOTIFY", "c", "SHARED"],
                 shared.cancel(7, "c").script(60_000, true)
    all = Serverlock::Request.new(%w[a b], several: true, lease: 30)
    assert_equal ["lock.mextend", 2, "a", "b", 12, "PX", 9], all.extend(12, 9).words
    assert_equal [4, "a", "b", "a:queue:{a}", "b:queue:{b}", "lock_extend_all", 1000, 60_000, 12, "PX", 9],
                 all.extend(12, 9).script(60_000, true)
    assert_equal([%w[lock.check a], %w[lock.check b]], all.checks(12).map { |check| check.words.take(2) })
    assert_predicate Serverlock::Request.new("a{b", lease: 30, limit: 2), :needs_module?
    refute_predicate Serverlock::Request.new("a{b", lease: 30), :needs_module?
  end
end
