import{a as F}from"./chunk-CTRT4DZO.js";import{c as R}from"./chunk-5U3UNXJB.js";import{d as J,e as T,f as U,g as z,h as d,i as p}from"./chunk-XDZRF5TC.js";import"./chunk-EQUGYJSW.js";import{a as Q}from"./chunk-ZW2QDMXM.js";import{g as B,i as G}from"./chunk-4QRHCZLH.js";import"./chunk-56FLLOVB.js";import{c as E,d as M,e as L}from"./chunk-H6P7LVCD.js";import"./chunk-ZGQVF3JS.js";import"./chunk-OZGXRYUH.js";import{b as H}from"./chunk-644N3J4S.js";import"./chunk-NOSRN6OO.js";import{b as j}from"./chunk-4KN5MMOI.js";import{d as w}from"./chunk-2T4NNJJ5.js";import"./chunk-THH72DBH.js";import"./chunk-UR3DQCT2.js";import"./chunk-DLK3BUBO.js";import{Ia as k,Ta as I,U as A,Ua as W,Ya as O,_ as N,b as f,c as se,f as q,ha as D}from"./chunk-5RWK2TXD.js";var Y=f(se(),1);var s=JSON.stringify,g=e=>e.tls?"amqps":"amqp",m=e=>e.host.includes(":")?`[${e.host}]`:e.host,c="PASSWORD",V=[{language:"Python",install:"pip install python-qpid-proton",file:"hello.py",text:e=>`from proton import Message${e.tls?", SSLDomain":""}
from proton.utils import BlockingConnection
${e.tls?`
tls = SSLDomain(SSLDomain.MODE_CLIENT)
tls.set_trusted_ca_db("ca.crt")
tls.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
`:""}
connection = BlockingConnection(
    "${g(e)}://${m(e)}:${e.port}",
    virtual_host=${s(e.space)},${e.tls?`
    ssl_domain=tls,`:""}${e.user===null?"":`
    user=${s(e.user)},
    password="${c}",${e.tls?"":`
    allow_insecure_mechs=True,`}`}
)
sender = connection.create_sender(${s(e.address)})
receiver = connection.create_receiver(${s(e.address)})
sender.send(Message(body="hello", durable=True))
print(receiver.receive(timeout=5).body)
receiver.accept()
connection.close()
`},{language:"Java",install:"org.apache.qpid:qpid-jms-client (Maven)",file:"Hello.java",text:e=>{let a=[`amqp.vhost=${encodeURIComponent(e.space)}`];e.tls&&a.push("transport.trustStoreLocation=ca.p12","transport.trustStorePassword=changeit");let i=e.user===null?"":`${s(e.user)}, "${c}"`;return`import jakarta.jms.*;
import org.apache.qpid.jms.JmsConnectionFactory;

public class Hello {
  public static void main(String[] arguments) throws JMSException {${e.tls?`
    // keytool -importcert -noprompt -alias enmasse -file ca.crt -keystore ca.p12 -storepass changeit`:""}
    var factory = new JmsConnectionFactory(
        "${g(e)}://${m(e)}:${e.port}?${a.join("&")}");
    try (Connection connection = factory.createConnection(${i})) {
      connection.start();
      Session session = connection.createSession();
      Queue address = session.createQueue(${s(e.address)});
      MessageConsumer receiver = session.createConsumer(address);
      session.createProducer(address).send(session.createTextMessage("hello"));
      System.out.println(((TextMessage) receiver.receive(5000)).getText());
    }
  }
}
`}},{language:"JavaScript",install:"npm install rhea",file:"hello.mjs",text:e=>`import rhea from "rhea";${e.tls?`
import { readFileSync } from "node:fs";`:""}

const container = rhea.create_container();
container.on("receiver_open", ({ connection }) => connection.open_sender(${s(e.address)}));
container.once("sendable", ({ sender }) => sender.send({ body: "hello", durable: true }));
container.on("message", ({ message, connection }) => {
  console.log(message.body);
  connection.close();
});
container
  .connect({
    host: ${s(e.host)},
    port: ${e.port},
    hostname: ${s(e.space)},${e.tls?`
    transport: "tls",
    servername: `+s(e.host)+`,
    ca: readFileSync("ca.crt"),`:""}${e.user===null?`
    username: "anonymous",`:`
    username: ${s(e.user)},
    password: "${c}",`}
    reconnect: false,
  })
  .open_receiver(${s(e.address)});
`},{language:"Go",install:"go get github.com/Azure/go-amqp",file:"main.go",text:e=>`package main

import (
	"context"${e.tls?`
	"crypto/tls"
	"crypto/x509"`:""}
	"fmt"
	"log"${e.tls?`
	"os"`:""}

	"github.com/Azure/go-amqp"
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

func main() {
	ctx := context.Background()${e.tls?`
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(must(os.ReadFile("ca.crt")))`:""}
	conn := must(amqp.Dial(ctx, "${g(e)}://${m(e)}:${e.port}", &amqp.ConnOptions{
		HostName: ${s(e.space)},${e.tls?`
		TLSConfig: &tls.Config{RootCAs: roots, ServerName: ${s(e.host)}},`:""}
		SASLType: ${e.user===null?"amqp.SASLTypeAnonymous()":`amqp.SASLTypePlain(${s(e.user)}, "${c}")`},
	}))
	defer conn.Close()
	session := must(conn.NewSession(ctx, nil))
	receiver := must(session.NewReceiver(ctx, ${s(e.address)}, nil))
	sender := must(session.NewSender(ctx, ${s(e.address)}, nil))
	message := amqp.NewMessage([]byte("hello"))
	message.Header = &amqp.MessageHeader{Durable: true}
	if err := sender.Send(ctx, message, nil); err != nil {
		log.Fatal(err)
	}
	got := must(receiver.Receive(ctx, nil))
	fmt.Println(string(got.GetData()))
	if err := receiver.AcceptMessage(ctx, got); err != nil {
		log.Fatal(err)
	}
}
`},{language:"C++",install:"libqpid-proton-cpp-dev (apt); link with -lqpid-proton-cpp",file:"hello.cpp",text:e=>`#include <proton/connection.hpp>
#include <proton/connection_options.hpp>
#include <proton/container.hpp>
#include <proton/delivery.hpp>
#include <proton/message.hpp>
#include <proton/messaging_handler.hpp>
#include <proton/receiver.hpp>
#include <proton/sender.hpp>${e.tls?`
#include <proton/ssl.hpp>`:""}
#include <iostream>

struct Hello : proton::messaging_handler {
  void on_container_start(proton::container& container) override {
    proton::connection_options options;
    options.virtual_host(${s(e.space)});${e.tls?`
    options.ssl_client_options(proton::ssl_client_options("ca.crt"));`:""}${e.user===null?"":`
    options.user(${s(e.user)}).password("${c}");${e.tls?"":`
    options.sasl_allow_insecure_mechs(true);`}`}
    auto connection = container.connect("${g(e)}://${m(e)}:${e.port}", options);
    connection.open_receiver(${s(e.address)});
    connection.open_sender(${s(e.address)});
  }
  void on_sendable(proton::sender& sender) override {
    sender.send(proton::message("hello"));
    sender.close();
  }
  void on_message(proton::delivery& delivery, proton::message& message) override {
    std::cout << proton::get<std::string>(message.body()) << std::endl;
    delivery.connection().close();
  }
};

int main() {
  Hello hello;
  proton::container(hello).run();
}
`},{language:"MQTT",install:"apt-get install mosquitto-clients",file:"hello.sh",text:e=>{let i=`-u ${e.user===null?`anonymous@${e.space}`:`${e.user}@${e.space}`} -P ${e.user===null?"none":c}`,o=`-h ${e.host} -p ${e.port}${e.tls?" --cafile ca.crt":""} ${i} -V 5`;return`mosquitto_sub ${o} -t ${v(e.address)} -q 1 -C 1 -W 5 &
sleep 1
mosquitto_pub ${o} -t ${v(e.address)} -q 1 -m hello
wait
`}},{language:"HTTP",install:"apt-get install curl",file:"hello.sh",text:e=>{let a=`/v1/spaces/${e.space}/addresses/${encodeURIComponent(e.address)}`,i=v(`http${e.tls?"s":""}://${m(e)}:${e.port}${a}`),o=`curl --silent --show-error${e.tls?" --cacert ca.crt":""}${e.user===null?"":` -u ${e.user}:${c}`}`;return`ADDRESS=${i}
# With auto=true messages are accepted as they come; without it each has a lease, to be settled.
${o} --data '' "$ADDRESS/receive?wait=5&auto=true" &
sleep 1
${o} --data hello -H 'Content-Type: text/plain' "$ADDRESS/messages"
wait
`}}];function v(e){return`'${e.replaceAll("'",`'"'"'`)}'`}var t=f(q(),1),X=[["amqp","AMQP"],["amqps","AMQPS"],["amqp-ws","AMQP-WS"],["amqp-wss","AMQP-WSS"],["http","HTTP"],["https","HTTPS"]];function ne(e){return e==="localhost"||e==="::1"||e.startsWith("127.")}function oe(e,a){return(e.spec.endpoints??[]).find(o=>o.name===a.name)?.expose?.type??"installation"}function re(){let e=j(),[a,i]=I(),{data:o,error:y}=O(`${e.inNamespace}/addressspaces`,e.name),b=a.get("address")??"orders",l=o?.status?.endpointStatuses??[],h=l.find(n=>n.externalHost),x=h?.externalHost??window.location.hostname.replace(/^\[|\]$/g,""),[u,K]=(0,Y.useState)(!ne(x)||h!==void 0),$=h?.externalPorts??l[0]?.servicePorts??{},Z=(u?$.amqps:$.amqp)??Object.values($)[0],P=o?.spec.authenticationService,_=P?.type==="none"||P?.name?.startsWith("none")===!0,ee={host:x,port:Z??0,tls:u,space:`${e.name}.${e.namespace}`,address:b,user:_?null:"USER"},S=o?.status?.caCert;return(0,t.jsxs)(W,{title:"Endpoints",trail:[{title:"Spaces",to:"/spaces"},{title:e.name,to:`${e.to}/addresses`}],actions:S&&(0,t.jsx)(A,{variant:"secondary",onClick:()=>B("ca.crt",S,"application/x-pem-file"),children:"Download ca.crt"}),about:"Where clients connect. Every port speaks AMQP, MQTT, STOMP, HTTP and WebSocket, in the clear and over TLS.",children:[y&&(0,t.jsx)(k,{error:y}),o&&l.length===0&&(0,t.jsx)(Q,{title:"No endpoint yet",children:"The space is being configured; its endpoints appear here as soon as it is ready."}),o&&l.length>0&&(0,t.jsxs)(t.Fragment,{children:[(0,t.jsxs)(J,{"aria-label":"Endpoints",variant:"compact",gridBreakPoint:"grid-md",children:[(0,t.jsx)(U,{children:(0,t.jsxs)(T,{children:[(0,t.jsx)(d,{children:"Name"}),(0,t.jsx)(d,{children:"Type"}),(0,t.jsx)(d,{children:"Host"}),X.map(([,n])=>(0,t.jsx)(d,{children:n},n))]})}),(0,t.jsx)(z,{children:l.flatMap(n=>[{name:n.name,type:"installation",host:n.serviceHost,ports:n.servicePorts},...n.externalHost?[{name:n.name,type:oe(o,n),host:n.externalHost,ports:n.externalPorts}]:[]].map(r=>(0,t.jsxs)(T,{children:[(0,t.jsx)(p,{dataLabel:"Name",children:r.name}),(0,t.jsx)(p,{dataLabel:"Type",children:(0,t.jsx)(R,{isCompact:!0,children:r.type})}),(0,t.jsx)(p,{dataLabel:"Host",className:"em-wrap",children:r.host}),X.map(([C,te])=>(0,t.jsx)(p,{dataLabel:te,children:r.ports?.[C]??"\u2013"},C))]},`${r.name}/${r.type}`)))})]}),(0,t.jsxs)(E,{className:"em-above",children:[(0,t.jsx)(L,{component:"h2",children:"Send and receive a message"}),(0,t.jsxs)(M,{children:[(0,t.jsxs)(D,{alignItems:{default:"alignItemsFlexEnd"},columnGap:{default:"columnGapXl"},className:"em-figures",children:[(0,t.jsx)(H,{label:"Address",fieldId:"snippet-address",children:(0,t.jsx)(w,{id:"snippet-address",value:b,onChange:(n,r)=>i({address:r},{replace:!0}),autoComplete:"off"})}),(0,t.jsx)(F,{id:"snippet-tls",label:"TLS",isChecked:u,onChange:(n,r)=>K(r)})]}),(0,t.jsx)(G,{label:"Language",tabs:V.map(n=>({name:n.language,text:n.text(ee),file:n.file,note:(0,t.jsxs)(N,{component:"p",className:"em-above",children:["First: ",(0,t.jsx)("code",{children:n.install}),u&&S&&" and download ca.crt beside it",_?"":". Put a user of the space in the place of USER and PASSWORD","."]})}))})]})]})]})]})}export{re as default};
