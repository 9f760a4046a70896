// Sends numbered durable messages one after the other, however often its node goes and comes.
// Prints "begun" after some were accepted, and "done" after all were.
'use strict';

const rhea = require('rhea');

const {port, address, count, few} = JSON.parse(process.argv[2]);
const container = rhea.create_container();
const connection = container.connect({
    host: '127.0.0.1', port, initial_reconnect_delay: 50, max_reconnect_delay: 200,
});
const sender = connection.open_sender(address);
let next = 0;
// Of what was sent more than once, one counts.
let waits_for = null;

function send() {
    if (waits_for === null && sender.sendable()) {
        waits_for = sender.send({body: `m${next}`, durable: true});
    }
}

sender.on('sendable', send);
sender.on('accepted', context => {
    if (context.delivery !== waits_for) {
        return;
    }
    waits_for = null;
    next++;
    if (next === few) {
        console.log('begun');
    }
    if (next === count) {
        console.log('done');
        process.exit(0);
    }
    setTimeout(send, 5);
});
sender.on('released', () => {
    waits_for = null;
    setTimeout(send, 5);
});
// The fate of what was on its way is not known, so it goes again.
container.on('disconnected', () => {
    waits_for = null;
});
