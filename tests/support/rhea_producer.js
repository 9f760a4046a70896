// Sends numbered durable messages with rhea until it is told to stop or its node dies; with "reconnects", whatever
// dies: what has no outcome then gets none.
// Prints "s NUMBER" before each is sent, "a NUMBER" or "r NUMBER" for its outcome.
'use strict';

const rhea = require('rhea');

const {port, address, name, first, window, hostname, reconnects} = JSON.parse(process.argv[2]);
const container = rhea.create_container();
const connection = container.connect({
    host: '127.0.0.1',
    port,
    ...(hostname && {hostname}),
    ...(reconnects ? {initial_reconnect_delay: 50, max_reconnect_delay: 200} : {reconnect: false}),
});
const sender = connection.open_sender(address);
const under_way = new Map();
let next = first;
let is_stopping = false;

// A pipe takes what is written at once, so nothing is sent that was not printed before.
function pump() {
    while (!is_stopping && sender.sendable() && under_way.size < window) {
        process.stdout.write(`s ${next}\n`);
        under_way.set(sender.send({body: `${name}:${next}`, durable: true}).id, next);
        next++;
    }
    if (is_stopping && !under_way.size) {
        connection.close();
    }
}

function answer(letter) {
    return context => {
        process.stdout.write(`${letter} ${under_way.get(context.delivery.id)}\n`);
        under_way.delete(context.delivery.id);
        pump();
    };
}

sender.on('sendable', pump);
sender.on('accepted', answer('a'));
sender.on('released', answer('r'));
process.stdin.on('data', () => {
    is_stopping = true;
    pump();
});
function end() {
    if (!reconnects || is_stopping) {
        process.exit(0);
    }
    under_way.clear();
}

container.on('disconnected', end);
container.on('connection_close', end);
container.on('connection_error', end);
container.on('sender_error', context => {
    console.error(`sender: ${context.sender.error}`);
    process.exit(1);
});
