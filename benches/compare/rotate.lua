-- Sends the requests of a file in turn, each exactly as it stands there, and prints the counts as one line of JSON.
--   wrk ... -s rotate.lua URL -- FILE
-- FILE: for each request its length in decimal, a line feed, and its bytes.

local threads = 0

function setup(thread)
  thread:set("turn", threads)
  threads = threads + 1
end

function init(args)
  requests = {}
  local file = assert(io.open(args[1], "rb"))
  local length = file:read("*n")
  while length do
    file:read(1)
    requests[#requests + 1] = file:read(length)
    length = file:read("*n")
  end
  file:close()
  turn = turn * math.floor(#requests / 2)
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local e = summary.errors
  print(string.format(
    'JSON {"requests":%d,"seconds":%.6f,"bytes":%d,"errors":%d,"p50_ms":%.4f,"p99_ms":%.4f}',
    summary.requests, summary.duration / 1e6, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3))
end
