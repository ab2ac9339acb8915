# frozen_string_literal: true

# Uses redis-rb 5 from $REDIS_RB_5, next to the installed version 4: scripts/test-clients.sh unpacks it there.
gems = Dir[File.join(ENV.fetch("REDIS_RB_5"), "usr/share/rubygems-integration/all/gems/redis-*/lib")]
abort "#{ENV.fetch('REDIS_RB_5')} has no redis-rb 5" if gems.empty?
$LOAD_PATH.unshift(*gems)
