// Logs in with rhea, as a JSON argument says, sends one message and receives it; prints a JSON report.
'use strict';

const rhea = require('rhea');

const asked = JSON.parse(process.argv[2]);
const report = {opened: false, outcome: null, received: null, errors: []};
const timer = setTimeout(() => finish('late'), 30000);
let connection = null;

function finish(why) {
    clearTimeout(timer);
    report.end = why;
    console.log(JSON.stringify(report));
    process.exit(0);
}

function note(error) {
    report.errors.push({condition: error && error.condition, description: error && error.description});
}

const container = rhea.create_container();
container.on('connection_open', () => {
    report.opened = true;
    if (!asked.address) {
        connection.close();
        return;
    }
    connection.open_sender(asked.address);
});
container.once('sendable', context => context.sender.send({body: 'hello'}));
container.on('accepted', () => {
    report.outcome = 'accepted';
    connection.open_receiver(asked.source || asked.address);
});
container.on('message', context => {
    report.received = context.message.body;
    connection.close();
});
container.on('sender_error', context => {
    note(context.sender.error);
    connection.close();
});
container.on('receiver_error', context => {
    note(context.receiver.error);
    connection.close();
});
container.on('connection_error', context => note(context.connection.error));
container.on('connection_close', () => finish('closed'));
container.on('disconnected', context => {
    if (context.error) {
        note(context.error);
    }
    finish('disconnected');
});
connection = container.connect(Object.assign({host: '127.0.0.1', port: asked.port, reconnect: false}, asked.options));
