-- Pleach's packets for Wireshark and tshark.
--
-- Most packets of Pleach are RoCEv2, which Wireshark decodes by itself at UDP port 4791. This script adds what is not RoCEv2:
-- parts and acknowledgements of transfers (opcodes 0xe1 and 0xe2), packets whose ICRC covers only their beginning (version 1 of the
-- base transport header), and the aggregation messages inside RoCEv2 packets.
--
--   tshark -X lua_script:pleach.lua -r job.pcap -Y pleach
--   wireshark: copy the script into the folder of personal Lua plugins (Help, About, Folders)
--
-- Transfers are recognised at any port. For other packets at another port than 4791: -d udp.port==PORT,pleach

local pleach = Proto("pleach", "Pleach")
local aggregation = Proto("pleach_aggregation", "Pleach aggregation message")

local TRANSFER_BYTES = 56
local AGGREGATION_BYTES = 32
local BTH_BYTES = 12
local ICRC_BYTES = 4
local SHORT_ICRC_BYTES = 128

local kinds = { [0xe1] = "data", [0xe2] = "acknowledgement" }
local message_kinds = {
    [1] = "contribution", [2] = "result", [3] = "repair", [4] = "abort", [5] = "poll", [6] = "not entered",
}

local f = {
    kind = ProtoField.uint8("pleach.kind", "Kind", base.HEX, kinds),
    probe = ProtoField.uint8("pleach.probe", "Probe", base.DEC, nil, 0x0e),
    acknowledge = ProtoField.bool("pleach.acknowledge_now", "Acknowledge now", 8, nil, 0x01),
    round = ProtoField.uint16("pleach.round", "Round"),
    destination = ProtoField.uint32("pleach.destination", "Queue pair of the receiver", base.HEX),
    group = ProtoField.uint32("pleach.group", "Group"),
    epoch = ProtoField.uint32("pleach.epoch", "Epoch"),
    operation = ProtoField.uint32("pleach.operation", "Operation"),
    fingerprint = ProtoField.uint32("pleach.fingerprint", "Fingerprint of the operation", base.HEX),
    length = ProtoField.uint32("pleach.length", "Bytes of the whole transfer"),
    unfinished = ProtoField.uint32("pleach.unfinished", "First operation unfinished at the sender"),
    offset = ProtoField.uint32("pleach.offset", "Offset of the payload"),
    received = ProtoField.uint32("pleach.received", "Bytes received without a gap"),
    limit = ProtoField.uint32("pleach.limit", "Bytes that may be sent"),
    payload_mac = ProtoField.uint64("pleach.payload_mac", "MAC of the payload", base.HEX),
    mac = ProtoField.bytes("pleach.mac", "MAC of the header"),
    missing_offset = ProtoField.uint32("pleach.missing.offset", "Missing from"),
    missing_length = ProtoField.uint32("pleach.missing.length", "Missing bytes"),
    payload = ProtoField.bytes("pleach.payload", "Payload"),
    opcode = ProtoField.uint8("pleach.bth.opcode", "Opcode", base.HEX),
    pad_count = ProtoField.uint8("pleach.bth.padcnt", "Pad count", base.DEC, nil, 0x30),
    destination_qp = ProtoField.uint24("pleach.bth.destqp", "Destination queue pair", base.HEX),
    sequence = ProtoField.uint24("pleach.bth.psn", "Packet sequence number"),
    icrc = ProtoField.uint32("pleach.icrc", "ICRC of the first bytes", base.HEX),
}
pleach.fields = f

local g = {
    version = ProtoField.uint8("pleach_aggregation.version", "Version", base.DEC, nil, 0xf0),
    kind = ProtoField.uint8("pleach_aggregation.kind", "Kind", base.DEC, message_kinds, 0x0f),
    element = ProtoField.uint8("pleach_aggregation.element", "Element type"),
    operator = ProtoField.uint8("pleach_aggregation.operator", "Operator"),
    flags = ProtoField.uint8("pleach_aggregation.flags", "Flags", base.HEX),
    group = ProtoField.uint32("pleach_aggregation.group", "Group"),
    epoch = ProtoField.uint32("pleach_aggregation.epoch", "Epoch"),
    operation = ProtoField.uint32("pleach_aggregation.operation", "Operation"),
    segment = ProtoField.uint32("pleach_aggregation.segment", "Segment"),
    child = ProtoField.uint16("pleach_aggregation.child", "Child"),
    count = ProtoField.uint16("pleach_aggregation.count", "Elements"),
    detail = ProtoField.uint32("pleach_aggregation.detail", "Detail", base.HEX),
    crc = ProtoField.uint32("pleach_aggregation.crc", "CRC-32C", base.HEX),
    payload = ProtoField.bytes("pleach_aggregation.payload", "Elements"),
}
aggregation.fields = g

local function is_transfer(buffer)
    return buffer:len() >= TRANSFER_BYTES and kinds[buffer(0, 1):uint()] ~= nil
end

local function has_short_icrc(buffer)
    return buffer:len() >= BTH_BYTES + ICRC_BYTES and buffer(1, 1):bitfield(4, 4) == 1
end

local function dissect_transfer(buffer, pinfo, tree)
    local is_data = buffer(0, 1):uint() == 0xe1
    local top = tree:add(pleach, buffer(), "Pleach transfer, " .. kinds[buffer(0, 1):uint()])
    top:add(f.kind, buffer(0, 1))
    top:add(f.probe, buffer(1, 1))
    top:add(f.acknowledge, buffer(1, 1))
    top:add(f.round, buffer(2, 2))
    top:add(f.destination, buffer(4, 4))
    top:add(f.group, buffer(8, 4))
    top:add(f.epoch, buffer(12, 4))
    top:add(f.operation, buffer(16, 4))
    top:add(f.fingerprint, buffer(20, 4))
    top:add(f.length, buffer(24, 4))
    top:add(f.unfinished, buffer(28, 4))
    local what
    if is_data then
        top:add(f.offset, buffer(32, 4))
        what = string.format("%d bytes at %d of %d", buffer:len() - TRANSFER_BYTES, buffer(32, 4):uint(), buffer(24, 4):uint())
    else
        top:add(f.received, buffer(32, 4))
        top:add(f.limit, buffer(36, 4))
        what = string.format("received %d, may send %d", buffer(32, 4):uint(), buffer(36, 4):uint())
    end
    top:add(f.payload_mac, buffer(40, 8))
    top:add(f.mac, buffer(48, 8))
    if is_data and buffer:len() > TRANSFER_BYTES then
        top:add(f.payload, buffer(TRANSFER_BYTES))
    elseif not is_data then
        for at = TRANSFER_BYTES, buffer:len() - 8, 8 do
            top:add(f.missing_offset, buffer(at, 4))
            top:add(f.missing_length, buffer(at + 4, 4))
        end
    end
    pinfo.cols.protocol = "Pleach"
    pinfo.cols.info = string.format("group %d operation %d round %d: %s",
        buffer(8, 4):uint(), buffer(16, 4):uint(), buffer(2, 2):uint(), what)
end

local function dissect_short_icrc(buffer, pinfo, tree)
    local top = tree:add(pleach, buffer(),
        string.format("Pleach, as RoCEv2 but with an ICRC of the first %d bytes only", SHORT_ICRC_BYTES))
    top:add(f.opcode, buffer(0, 1))
    top:add(f.pad_count, buffer(1, 1))
    top:add(f.destination_qp, buffer(5, 3))
    top:add(f.sequence, buffer(9, 3))
    local rest = buffer:len() - BTH_BYTES - ICRC_BYTES
    if rest > 0 then
        top:add(f.payload, buffer(BTH_BYTES, rest))
    end
    top:add(f.icrc, buffer(buffer:len() - ICRC_BYTES, ICRC_BYTES))
    pinfo.cols.protocol = "Pleach"
    pinfo.cols.info = string.format("opcode 0x%02x, queue pair 0x%06x, sequence number %d, shortened ICRC",
        buffer(0, 1):uint(), buffer(5, 3):uint(), buffer(9, 3):uint())
end

-- What Wireshark itself does with port 4791.
local udp_ports = DissectorTable.get("udp.port")
local roce = udp_ports:get_dissector(4791)

function pleach.dissector(buffer, pinfo, tree)
    if is_transfer(buffer) then
        dissect_transfer(buffer, pinfo, tree)
    elseif has_short_icrc(buffer) then
        dissect_short_icrc(buffer, pinfo, tree)
    elseif roce then
        return roce:call(buffer:range():tvb(), pinfo, tree)
    else
        return 0
    end
    return buffer:len()
end
udp_ports:add(4791, pleach)

-- At other ports only what cannot well be anything else.
pleach:register_heuristic("udp", function(buffer, pinfo, tree)
    if not is_transfer(buffer) then return false end
    local length, position = buffer(24, 4):uint(), buffer(32, 4):uint()
    local rest = buffer:len() - TRANSFER_BYTES
    local is_data = buffer(0, 1):uint() == 0xe1
    if is_data and (position + rest > length or buffer(36, 4):uint() ~= 0) then return false end
    if not is_data and rest % 8 ~= 0 then return false end
    dissect_transfer(buffer, pinfo, tree)
    return true
end)

aggregation:register_heuristic("infiniband.payload", function(buffer, _, tree)
    if buffer:len() < AGGREGATION_BYTES then return false end
    if buffer(0, 1):bitfield(0, 4) ~= 1 or message_kinds[buffer(0, 1):bitfield(4, 4)] == nil then return false end
    local top = tree:add(aggregation, buffer(),
        "Pleach aggregation, " .. message_kinds[buffer(0, 1):bitfield(4, 4)])
    top:add(g.version, buffer(0, 1))
    top:add(g.kind, buffer(0, 1))
    top:add(g.element, buffer(1, 1))
    top:add(g.operator, buffer(2, 1))
    top:add(g.flags, buffer(3, 1))
    top:add(g.group, buffer(4, 4))
    top:add(g.epoch, buffer(8, 4))
    top:add(g.operation, buffer(12, 4))
    top:add(g.segment, buffer(16, 4))
    top:add(g.child, buffer(20, 2))
    top:add(g.count, buffer(22, 2))
    top:add(g.detail, buffer(24, 4))
    top:add(g.crc, buffer(28, 4))
    if buffer:len() > AGGREGATION_BYTES then
        top:add(g.payload, buffer(AGGREGATION_BYTES))
    end
    return true
end)
